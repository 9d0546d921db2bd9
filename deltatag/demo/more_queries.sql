-- Questions with functions that only Spark has, such as mode:
-- deltatag sql --file more_queries.sql

-- The flights that most rules speak about
SELECT concat(carrier, flight) AS flight, concat(origin, '-', dest) AS route,
       date_format(scheduled_at, 'd MMM HH:mm') AS scheduled, dep_delay AS late, array_join(rule_ids, ', ') AS rules
FROM flights_tagged
ORDER BY size(rule_ids) DESC, dep_delay DESC, flight_id
LIMIT 5;

-- What each team has to look at
SELECT owner, count(*) AS matches, count(DISTINCT flight_id) AS flights, count(DISTINCT rule_id) AS rules,
       mode(rule_id) AS most_often
FROM flights_matches JOIN rules USING (rule_id)
GROUP BY owner
ORDER BY flights DESC;

-- Of the flights that left two hours late, how many made up for some of it, and how many lost still more
SELECT carrier, count(*) AS very_late,
       round(100 * avg(CAST(array_contains(rule_ids, 'made-up-time') AS INT)), 1) AS made_up_percent,
       round(100 * avg(CAST(array_contains(rule_ids, 'lost-time') AS INT)), 1) AS lost_more_percent
FROM flights_tagged
WHERE array_contains(rule_ids, 'very-late-departure')
GROUP BY carrier
HAVING count(*) >= 300
ORDER BY made_up_percent DESC;

-- The days on which the weather held up most flights
SELECT date_format(flights.scheduled_at, 'd MMM') AS day, count(DISTINCT flights.flight_id) AS flights,
       round(max(weather.wind_gust)) AS gusts, min(weather.visib) AS visibility, max(weather.precip) AS rain,
       mode(rule) AS most_often
FROM flights_weather_tagged LATERAL VIEW explode(rule_ids) AS rule
WHERE rule IN ('late-in-gusts', 'low-visibility-hold', 'cancelled-in-storm')
GROUP BY day
ORDER BY flights DESC, day
LIMIT 5;
