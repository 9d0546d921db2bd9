-- Rules that hold always, by who answers for them
INSERT INTO rules (rule_id, scope, owner, expression, description) VALUES

  -- What passengers feel
  ('late-departure', 'flights', 'passengers', 'dep_delay >= 15', 'left late by the usual definition'),
  ('very-late-departure', 'flights', 'passengers', 'dep_delay BETWEEN 120 AND 359', 'left two hours late or more'),
  ('extreme-delay', 'flights', 'passengers', 'dep_delay >= 360 OR arr_delay >= 360', 'six hours late: meals and hotels'),
  ('cancelled', 'flights', 'passengers', 'departed_at IS NULL', 'never left'),
  ('diverted', 'flights', 'passengers', 'departed_at IS NOT NULL AND arr_delay IS NULL', 'left, and landed elsewhere'),
  ('rebook', 'flights', 'passengers', 'departed_at IS NULL OR arr_delay > 180', 'passengers to rebook'),
  ('missed-connections', 'flights', 'passengers',
   "arr_delay > 45 AND dest IN ('ATL', 'ORD', 'DFW', 'CLT', 'DEN', 'IAH', 'DTW', 'MSP', 'PHX', 'SLC')",
   'late into a hub'),
  ('late-at-night', 'flights', 'passengers', 'arr_delay > 30 AND (arr_time >= 2300 OR arr_time < 500)',
   'late, when public transport has stopped'),

  -- What the station looks after
  ('early-departure', 'flights', 'station', 'dep_delay < -10', 'left before some passengers were there'),
  ('first-wave-late', 'flights', 'station', 'hour(scheduled_at) BETWEEN 5 AND 7 AND dep_delay > 15',
   'a late start that the aircraft carries through its day'),
  ('red-eye', 'flights', 'station', 'hour(scheduled_at) >= 21 AND distance > 1000', 'long flight through the night'),
  ('weekend-peak', 'flights', 'station', 'dayofweek(scheduled_at) IN (1, 6) AND hour(scheduled_at) BETWEEN 16 AND 19',
   'Friday and Sunday evening: extra staff'),
  ('shuttle', 'flights', 'station', "origin = 'LGA' AND dest IN ('BOS', 'DCA', 'ORD') AND carrier IN ('US', 'DL', 'AA', 'UA')",
   'hourly business routes'),
  ('evening-storms', 'flights', 'station', 'month(scheduled_at) IN (6, 7, 8) AND hour(scheduled_at) >= 15 AND dep_delay > 60',
   'the summer pattern'),
  ('own-threshold', 'flights', 'station', "dep_delay > CASE carrier WHEN 'HA' THEN 60 WHEN 'AS' THEN 45 ELSE 90 END",
   'each carrier has agreed on its own limit'),
  ('impossible-route', 'flights', 'station', 'distance < 50', 'from one New York airport to another'),

  -- What the flight itself shows
  ('on-time', 'flights', 'network', 'arr_delay BETWEEN -14 AND 14', 'within a quarter of an hour'),
  ('made-up-time', 'flights', 'network', 'dep_delay > 0 AND dep_delay - arr_delay >= 20', 'won 20 minutes on the way'),
  ('lost-time', 'flights', 'network', 'arr_delay - dep_delay > 30', 'lost half an hour on the way'),
  ('left-well-came-late', 'flights', 'network', 'coalesce(dep_delay, 0) <= 0 AND arr_delay > 60', 'held in the air'),
  ('snowball', 'flights', 'network', 'arr_delay / dep_delay >= 2 AND dep_delay > 20', 'a delay that doubled on the way'),
  ('slow', 'flights', 'network', 'distance > 500 AND distance / (air_time / 60) < 350', 'miles an hour in the air'),
  ('tailwind', 'flights', 'network', 'distance * 60 / air_time > 540', 'faster than it cruises'),
  ('short-hop-long-wait', 'flights', 'network', 'distance < 250 AND dep_delay > 2 * air_time', 'the train would have won'),
  ('transcontinental', 'flights', 'network', "distance > 2400 AND dest NOT IN ('HNL', 'ANC')", 'coast to coast'),
  ('over-water', 'flights', 'network', "dest IN ('HNL', 'SJU', 'STT', 'BQN', 'PSE')", 'needs life rafts'),
  ('regional-late', 'flights', 'network', "carrier IN ('EV', '9E', 'MQ', 'OO', 'YV') AND arr_delay > 60",
   'what partners answer for'),

  -- What maintenance wants to see
  ('no-tail-number', 'flights', 'maintenance', 'tailnum IS NULL', 'nobody wrote down which aircraft it was'),
  ('odd-tail-number', 'flights', 'maintenance', "tailnum NOT RLIKE '^N[1-9][0-9]{0,4}[A-HJ-NP-Z]{0,2}$'",
   'no well-formed American tail number'),
  ('express-fleet', 'flights', 'maintenance', "tailnum LIKE 'N1%' AND tailnum NOT LIKE '%UW' AND aircraft.seats < 60",
   'small jets whose tail numbers begin with N1'),
  ('old-aircraft', 'flights', 'maintenance', 'aircraft.built < 1990', 'older than some of its pilots'),
  ('wide-body', 'flights', 'maintenance', 'aircraft.seats >= 250', 'two aisles'),
  ('tiny-on-a-long-route', 'flights', 'maintenance', 'aircraft.seats < 60 AND distance > 900', 'at the edge of its range'),
  ('airbus-very-late', 'flights', 'maintenance', "aircraft.manufacturer LIKE 'AIRBUS%' AND dep_delay > 120",
   'for the reliability report');

-- Rules on the weather alone
INSERT INTO rules (rule_id, scope, owner, expression, description) VALUES
  ('fog', 'weather', 'dispatch', 'visib < 0.5', 'low-visibility procedures'),
  ('gale', 'weather', 'dispatch', 'wind_gust >= 40', 'no high lifts on the ramp'),
  ('sleet', 'weather', 'dispatch', 'temp BETWEEN 30 AND 35 AND precip > 0', 'neither rain nor snow');

-- Rules on a flight together with the weather that its airport had in the three hours before
INSERT INTO rules (rule_id, scope, owner, expression, description) VALUES
  ('late-in-gusts', 'flights_weather', 'dispatch', 'weather.wind_gust >= 35 AND flights.dep_delay > 30',
   'fewer departures an hour'),
  ('low-visibility-hold', 'flights_weather', 'dispatch', 'weather.visib < 1 AND flights.dep_delay >= 15',
   'wider spacing on the approach'),
  ('freezing-precipitation', 'flights_weather', 'dispatch', 'weather.temp <= 32 AND weather.precip > 0',
   'mind how long the fluid holds'),
  ('crosswind', 'flights_weather', 'dispatch', 'weather.wind_speed > 25 AND (weather.wind_dir BETWEEN 80 AND 160 OR weather.wind_dir BETWEEN 260 AND 340)',
   'across the long runways, which point to 30 degrees'),
  ('cloudburst', 'flights_weather', 'dispatch',
   'weather.precip >= 0.25 AND timestampdiff(MINUTE, weather.observed_at, flights.scheduled_at) <= 60',
   'heavy rain in the last hour'),
  ('frost-queue', 'flights_weather', 'station',
   'weather.temp <= 36 AND weather.temp - weather.dewp <= 3 AND hour(flights.scheduled_at) < 10 AND flights.dep_delay BETWEEN 15 AND 120',
   'ice on the wings before the sun is up'),
  ('hot-and-large', 'flights_weather', 'station', 'weather.temp >= 95 AND flights.aircraft.seats >= 200',
   'less lift: mind the weight at take-off'),
  ('cancelled-in-storm', 'flights_weather', 'passengers',
   'flights.departed_at IS NULL AND (weather.wind_gust > 40 OR weather.visib < 0.5 OR weather.precip >= 0.2)',
   'nobody owes a night in a hotel'),
  ('late-in-fine-weather', 'flights_weather', 'passengers',
   'flights.dep_delay > 120 AND weather.visib >= 10 AND weather.wind_speed < 8 AND weather.precip = 0',
   'not the weather at this airport');

-- Rules for a time (from the first moment of it to the first moment after it), and one that is off until winter
INSERT INTO rules (rule_id, scope, owner, expression, description, valid_from, valid_to, enabled) VALUES
  ('furlough-week', 'flights', 'passengers', 'dep_delay > 30', 'air traffic control was short of staff',
   TIMESTAMP'2013-04-21 00:00:00', TIMESTAMP'2013-04-28 00:00:00', true),
  ('runway-closed', 'flights', 'station', "origin = 'LGA' AND (departed_at IS NULL OR dep_delay > 60)",
   'a nose gear had collapsed on the runway', TIMESTAMP'2013-07-22 17:00:00', TIMESTAMP'2013-07-23 12:00:00', true),
  ('thanksgiving', 'flights', 'station', 'true', 'the fullest days of the year',
   TIMESTAMP'2013-11-27 00:00:00', TIMESTAMP'2013-12-02 00:00:00', true),
  ('deicing', 'flights', 'station', 'hour(scheduled_at) < 10 AND dep_delay BETWEEN 20 AND 120',
   'the morning queue for de-icing', NULL, NULL, false);
