"""How the pieces are put together: which readings teach what, joins into evidence, lifts over covers, the search."""
