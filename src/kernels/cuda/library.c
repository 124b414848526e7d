/* See library.h. */
#include "src/kernels/cuda/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/assert.h"

#ifndef FSDP_CUDA_HOME
#define FSDP_CUDA_HOME "/usr/local/cuda"
#endif

static void *open_in(const char *home, const char *name)
{
    static const char *const folders[] = {"lib64", "lib", "targets/x86_64-linux/lib"};
    char path[4096];
    void *library = NULL;
    for (size_t i = 0; i < FSDP_LENGTH(folders) && home && *home && !library; i++) {
        const int length = snprintf(path, sizeof path, "%s/%s/%s", home, folders[i], name);
        if (length > 0 && (size_t)length < sizeof path)
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

static void *open_by_name(const char *name)
{
    const char *const homes[] = {getenv("CUDA_HOME"), FSDP_CUDA_HOME, "/usr/local/cuda"};
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < FSDP_LENGTH(homes) && !library; i++)
        library = open_in(homes[i], name);
    return library;
}

void *fsdp_cuda_library_open(const char *const *names, char *reason, size_t bytes)
{
    for (const char *const *name = names; *name; name++) {
        void *library = open_by_name(*name);
        if (library)
            return library;
    }
    /* called only because it sets the message of dlerror() */
    (void)dlopen(names[0], RTLD_NOW | RTLD_LOCAL);
    const char *error = dlerror();
    snprintf(reason, bytes, "%s", error ? error : names[0]);
    return NULL;
}
