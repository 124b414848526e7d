/* Declarations shared by the files that implement torch_archive.h. */
#pragma once
#include "src/base/arena.h"
#include "src/base/io.h"
#include "src/torchfile/torch_archive.h"
#include "src/torchfile/zip_reader.h"

struct fsdp_torch_archive {
    char *path;
    fsdp_zip_reader *zip;
    fsdp_pickle *pickle;
    fsdp_arena arena;     /* owns the shapes of tensors */
    fsdp_mapping *copies; /* [n_copies] copies of tensors that are not contiguous */
    size_t n_copies, copies_cap;
    size_t copy_bytes; /* number of bytes that may still be allocated for copies */
    bool *checked;     /* [number of records] whether fsdp_torch_archive_check() or check_rest() has
                          verified the record */
    bool checks_all;   /* fsdp_torch_archive_check_all() was called */
};
