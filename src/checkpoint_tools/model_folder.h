/* Writes a folder with a model in Hugging Face's layout, which appears whole or not at all. */
#pragma once
#include <stdbool.h>

#include "src/base/error.h"

/* Call write(arg, dir), which writes all files of the model into the folder `dir`, and give the
 * folder the name `to` if it succeeds. A folder that exists must be a model's. If `overwrite` is
 * true, its weights and configuration are replaced, and its other files are kept; otherwise it is
 * an error. */
FSDP_MUST_CHECK fsdp_status fsdp_write_model_folder(
    const char *to, bool overwrite, fsdp_status (*write)(void *arg, const char *dir), void *arg);
