"""The coordinator's side: REST, storage, phases in time. Start it with `uvicorn service.app:app`."""
