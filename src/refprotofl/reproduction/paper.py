"""The numbers that the paper prints, in percent."""

DATASETS = ("mnist", "fashion-mnist", "cifar10", "cifar100")
ALPHAS = (0.5, 100.0)
METHODS = {
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fednova": "FedNova",
    "fedproto": "FedProto",
    "vhl": "VHL",
    "fedgh": "FedGH",
    "fast": "FAST",
    "refprotofl": "RefProtoFL",
}

_TABLE_1 = {
    ("mnist", 0.5): (88.18, 87.41, 87.87, 87.68, 86.83, 87.29, 75.19, 88.46),
    ("mnist", 100.0): (97.83, 96.90, 97.82, 98.33, 97.08, 97.87, 86.74, 98.25),
    ("fashion-mnist", 0.5): (73.72, 70.84, 73.70, 73.82, 72.62, 73.71, 63.03, 74.21),
    ("fashion-mnist", 100.0): (85.10, 83.95, 84.91, 85.96, 84.29, 85.74, 76.44, 85.76),
    ("cifar10", 0.5): (43.93, 42.70, 43.72, 44.33, 40.30, 43.38, 35.14, 45.51),
    ("cifar10", 100.0): (52.05, 50.37, 51.73, 56.05, 48.84, 52.94, 45.07, 56.36),
    ("cifar100", 0.5): (14.56, 12.81, 14.46, 16.28, 13.24, 14.16, 9.97, 16.50),
    ("cifar100", 100.0): (16.75, 8.74, 17.22, 18.42, 15.57, 14.55, 12.13, 20.02),
}
_AVERAGE = (59.01, 56.71, 58.93, 60.11, 57.35, 58.71, 50.46, 60.63)

TABLE_1 = {
    (dataset, alpha, method): value
    for (dataset, alpha), values in _TABLE_1.items()
    for method, value in zip(METHODS, values, strict=True)
}
AVERAGE = dict(zip(METHODS, _AVERAGE, strict=True))
# Of CIFAR-10 with alpha = 0.5, by (erpa, apud).
TABLE_2 = {(True, True): 45.51, (False, True): 44.62, (True, False): 45.37, (False, False): 44.54}
