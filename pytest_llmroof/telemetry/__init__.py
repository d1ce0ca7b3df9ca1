"""Everything that turns bytes from engines, exporters, servers and benchmark tools into one canonical Window."""
