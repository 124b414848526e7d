/* Writes a folder with a model in Hugging Face's layout, which appears whole or not at all. */
#pragma once
#include <stdbool.h>

#include "src/base/error.h"

/* Create a temporary folder and call write(arg, dir), which writes all files of the model into this
 * folder, `dir`. If write() succeeds, give the folder its final name, `to`. If `to` exists and is
 * not empty, `overwrite` must be true. The model in `to` is then replaced, and the other files in
 * `to` are kept. It is an error if `to` is a checkpoint, even if `overwrite` is true. */
FSDP_MUST_CHECK fsdp_status fsdp_write_model_folder(
    const char *to, bool overwrite, fsdp_status (*write)(void *arg, const char *dir), void *arg);
