"""The verifier: reads a campaign home, repairs nothing, and lists everything that is not as it was sealed.

Standard library and relative imports alone. A copy travels inside every campaign (``frozen/verifier``), where
``launch.py`` runs it with nothing installed but Python.
"""
