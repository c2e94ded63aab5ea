"""The operators of the graph, each declared once as tensor expressions."""
