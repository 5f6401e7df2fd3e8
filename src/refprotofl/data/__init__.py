"""Data sets, their download, and their partition among clients."""

from typing import TYPE_CHECKING

from refprotofl.core import lazy_names

if TYPE_CHECKING:
    from refprotofl.data.client_files import client_file, export_federation
    from refprotofl.data.dataset import Dataset
    from refprotofl.data.digests import digest_data
    from refprotofl.data.draws import balanced_draw, covered_classes, default_per_class, draw_from_own, stratified_split
    from refprotofl.data.federated import FederatedData, federate, load_federated
    from refprotofl.data.image_files import is_image, read_images
    from refprotofl.data.inventory import Checked, Listing, check, fetch, list_datasets
    from refprotofl.data.labelled_samples import LabelledSamples, load_labelled, renumbered
    from refprotofl.data.loading import load_dataset
    from refprotofl.data.partitions import PartitionNotes, partition
    from refprotofl.data.reading import AS_IT_COMES, Reading, reading_of
    from refprotofl.data.server_data import ServerData, load_server_data, overlaps
    from refprotofl.data.sound_files import is_sound
    from refprotofl.data.table_data import is_table, read_features
    from refprotofl.data.text_files import is_text
    from refprotofl.data.unsplit import held_out_rows
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "AS_IT_COMES",
    "Checked",
    "Dataset",
    "FederatedData",
    "LabelledSamples",
    "Listing",
    "PartitionNotes",
    "Reading",
    "ServerData",
    "balanced_draw",
    "check",
    "client_file",
    "covered_classes",
    "default_per_class",
    "digest_data",
    "draw_from_own",
    "export_federation",
    "federate",
    "fetch",
    "held_out_rows",
    "is_image",
    "is_sound",
    "is_table",
    "is_text",
    "list_datasets",
    "load_dataset",
    "load_federated",
    "load_labelled",
    "load_server_data",
    "overlaps",
    "partition",
    "read_features",
    "read_images",
    "reading_of",
    "renumbered",
    "stratified_split",
]
