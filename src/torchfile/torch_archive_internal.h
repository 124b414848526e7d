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
    fsdp_arena arena;     /* shapes */
    fsdp_mapping *copies; /* [n_copies] of tensors that are not contiguous */
    size_t n_copies, copies_cap;
    size_t copy_bytes; /* bytes that further copies may take */
    bool *checked;     /* [records of zip] compared by fsdp_torch_archive_check() */
    bool checks_all;   /* compare checksums of storages of any size */
};
