/* A folder for fuzzers of files that need other files next to them; each input is a file in it. */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/io.h"

static char fuzz_folder_path[32];

static void fuzz_remove_folder(void)
{
    if (fsdp_tree_remove(fuzz_folder_path) != FSDP_OK)
        fprintf(stderr, "%s\n", fsdp_last_error());
}

/* Made by the first call and removed when the program ends. */
static const char *fuzz_folder(void)
{
    if (*fuzz_folder_path)
        return fuzz_folder_path;
    /* in memory, if the system has such a folder */
    strcpy(fuzz_folder_path, "/dev/shm/fsdp_fuzz_XXXXXX");
    if (!mkdtemp(fuzz_folder_path)) {
        strcpy(fuzz_folder_path, "/tmp/fsdp_fuzz_XXXXXX");
        if (!mkdtemp(fuzz_folder_path))
            abort();
    }
    atexit(fuzz_remove_folder);
    return fuzz_folder_path;
}

static void fuzz_put(const char *name, const void *data, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    FILE *file = fopen(path, "wb");
    if (!file || (bytes && fwrite(data, 1, bytes, file) != bytes) || fclose(file) != 0)
        abort();
}
