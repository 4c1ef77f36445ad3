"""Records that cross a threshold become alerts, and alerts become notifications."""
