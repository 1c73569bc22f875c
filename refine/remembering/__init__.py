"""What an agent keeps between its sessions: reflections on its journal, and conversations."""
