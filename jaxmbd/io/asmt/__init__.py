"""Models of FreeCAD's Assembly workbench."""
