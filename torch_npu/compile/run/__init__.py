"""What generated code calls when it runs."""
