"""The web dashboard of a coordinator: pages and a JSON API, as a client of the job API."""
