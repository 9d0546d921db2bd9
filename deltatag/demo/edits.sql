-- A new rule for the holidays
INSERT INTO rules (rule_id, scope, expression, owner, description) VALUES
  ('holiday-rebook', 'flights',
   "(departed_at IS NULL OR arr_delay > 90) AND to_date(scheduled_at) >= DATE'2013-12-20'",
   'passengers', 'full flights: rebook early');

-- Another threshold
UPDATE rules SET expression = 'dep_delay >= 30' WHERE rule_id = 'late-departure';

-- A slip of the pen: there is no column arr_dely
UPDATE rules SET expression = "dest IN ('ATL', 'ORD', 'DFW', 'CLT', 'DEN') AND arr_dely > 30"
WHERE rule_id = 'missed-connections';

-- A rule that nobody reads
DELETE FROM rules WHERE rule_id = 'on-time';

-- The winter's rules in one go
MERGE INTO rules USING (
  SELECT * FROM VALUES
    ('deicing', 'hour(scheduled_at) < 11 AND dep_delay BETWEEN 20 AND 120', 'the morning queue for de-icing'),
    ('red-eye', 'hour(scheduled_at) >= 21', 'any flight through the night'),
    ('snow-day', "dep_delay > 120 AND origin IN ('EWR', 'JFK', 'LGA') AND arr_delay > dep_delay", 'late, and later still')
  AS winter (rule_id, expression, description)
) AS winter ON rules.rule_id = winter.rule_id
WHEN MATCHED THEN UPDATE SET expression = winter.expression, enabled = true
WHEN NOT MATCHED THEN INSERT (rule_id, scope, expression, owner, description)
  VALUES (winter.rule_id, 'flights', winter.expression, 'station', winter.description);
