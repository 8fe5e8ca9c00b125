"""What makes other libraries use this one."""
