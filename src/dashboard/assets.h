/* The files of the dashboard's page, which are embedded in the program. */
#pragma once
#include <stddef.h>

typedef struct fsdp_asset {
    const char *path, *type; /* path after the token in a URL; value of Content-Type */
    const char *data;        /* [bytes] */
    size_t bytes;
} fsdp_asset;

/* Return the file whose path is `path`, such as "page.js", or "" for the page itself. Return NULL
 * if there is no such file. The result is valid until the next call in this thread. */
const fsdp_asset *fsdp_asset_find(const char *path);
