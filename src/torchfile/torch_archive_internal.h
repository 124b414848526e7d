/* What the files that implement torch_archive.h share. */
#pragma once
#include "src/base/arena.h"
#include "src/base/io.h"
#include "src/torchfile/torch_archive.h"
#include "src/torchfile/zip_reader.h"

struct fsdp_torch_archive {
    char *path;
    fsdp_zip_reader *zip;
    fsdp_pickle *pickle;
    fsdp_arena arena;     /* owns shapes */
    fsdp_mapping *copies; /* [n_copies] copies of tensors that are not contiguous */
    size_t n_copies, copies_cap;
    size_t copy_bytes; /* bytes that further copies may use */
    bool
        *checked; /* [number of records] whether fsdp_torch_archive_check() has compared a record */
    bool checks_all; /* compare checksums of storages of any size */
};
