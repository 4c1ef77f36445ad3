-- Every arrived flight with its airline, destination and plane, and how fast it was.
/*
reads: {arrivals: flights.arrived.v1}
writes: flights.arrived.enriched.v1
lookups:
  - name: airlines
    dimension: airlines
    by: carrier
    fields: {airline_name: name}
  - name: airports.destination
    dimension: airports
    by: destination
    fields: {destination_name: name, destination_timezone: timezone}
  - name: planes
    dimension: planes
    by: tail_number
    fields: {plane_model: model, plane_seats: seats}
*/
SELECT *, distance_miles / (air_time_minutes / 60) AS ground_speed_miles_per_hour
FROM arrivals -- with the looked-up fields
