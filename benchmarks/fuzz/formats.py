"""All formats: how hostile files of each are made, and how they are read."""

from fuzz import arrow, hdf5, minari, pickles, readers, tables, zips
from fuzz.harness import Format

FORMATS = {
    form.name: form
    for form in (
        Format("npz", zips.npz, readers.demonstrations),
        Format("mdp", zips.mdp_npz, readers.mdp),
        Format("iq_learn", pickles.iq_learn, readers.demonstrations),
        Format("csv", tables.csv_table, readers.demonstrations),
        Format("parquet", tables.parquet, readers.demonstrations),
        Format("imitation", arrow.imitation, readers.demonstrations),
        Format("d4rl", hdf5.d4rl, readers.demonstrations),
        Format("robomimic", hdf5.robomimic, readers.demonstrations),
        Format("minari", minari.minari, readers.demonstrations),
    )
}


def damaged(form: Format) -> Format:
    raise NotImplementedError
