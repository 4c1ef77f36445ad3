"""Processes: started, watched, started again, stopped; and which ones `up` starts."""
