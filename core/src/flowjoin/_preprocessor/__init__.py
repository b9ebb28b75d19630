"""Template to plan, by element name: what the flow table takes from each record."""
