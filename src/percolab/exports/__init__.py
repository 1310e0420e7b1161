"""Exports: files that others read, and back; torch Datasets and a Ray Dataset.

=======  =======================================================  ===================
format   files                                                    needs
=======  =======================================================  ===================
npz      the authors': points, latent values, metadata            nothing more
parquet  a folder that ``datasets.load_dataset`` opens by name    ``percolab[frames]``
csv      the same tables as text, and the recipe as JSON          ``percolab[frames]``
hdf5     one file with the columns of the data model              ``percolab[hdf5]``
=======  =======================================================  ===================

All but the first hold the whole dataset; `read_parquet`, `read_csv` and `read_hdf5` return it, equal to the bit.
Files are either complete or absent. Documents of a store are written by `to_npz` and `to_parquet`, one line per
document, beside a table of contexts. `to_huggingface` is another name of `to_parquet`.
"""

from percolab.ground.extras import stubbed

__getattr__, __dir__, __all__ = stubbed(__name__, extra="torch")
