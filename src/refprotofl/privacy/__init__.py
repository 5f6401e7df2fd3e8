"""How much of a unit's data a run can have told: epsilon, by the accountant of the extra `refprotofl[privacy]`."""
