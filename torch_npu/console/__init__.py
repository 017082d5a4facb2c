"""What commands, benches and reports print with: outcomes, tables, a progress bar."""
