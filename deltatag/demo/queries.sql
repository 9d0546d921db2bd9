-- The flights that most rules speak about
SELECT flight_id, carrier, origin, dest, dep_delay AS late, rule_ids
FROM flights_tagged
WHERE size(rule_ids) >= 11
ORDER BY dep_delay DESC, flight_id
LIMIT 5;

-- Who left two hours late or more, and did not make up for any of it
SELECT carrier, count(*) AS flights, max(arr_delay) AS latest
FROM flights_tagged
WHERE array_contains(rule_ids, 'very-late-departure') AND NOT array_contains(rule_ids, 'made-up-time')
GROUP BY carrier
ORDER BY flights DESC
LIMIT 5;

-- From when to when a rule has matched
SELECT rule_id, count(*) AS flights, min(scheduled_at) AS first, max(scheduled_at) AS last
FROM flights_matches
WHERE rule_id IN ('thanksgiving', 'holiday-rebook', 'snow-day', 'furlough-week', 'runway-closed')
GROUP BY rule_id
ORDER BY flights DESC;

-- The strongest gusts, and what else was the matter
SELECT origin, observed_at, wind_gust, visib, rule_ids
FROM weather_tagged
WHERE wind_gust > 50
ORDER BY wind_gust DESC, observed_at
LIMIT 5;
