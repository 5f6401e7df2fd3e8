"""Data sets, their download, and their partition among clients."""

from refprotofl.data.dataset import Dataset
from refprotofl.data.federated import FederatedData, federate, load_federated
from refprotofl.data.inventory import Checked, Listing, check, fetch, list_datasets
from refprotofl.data.loading import load_dataset
from refprotofl.data.partitions import PartitionNotes, partition

__all__ = [
    "Checked",
    "Dataset",
    "FederatedData",
    "Listing",
    "PartitionNotes",
    "check",
    "federate",
    "fetch",
    "list_datasets",
    "load_dataset",
    "load_federated",
    "partition",
]
