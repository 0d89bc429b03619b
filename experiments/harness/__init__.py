"""What every study uses: results on disk, worker processes, the machine, a clock."""
