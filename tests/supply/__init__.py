"""What Refine is made of besides its own code: packages, their licences, and vendored files."""
