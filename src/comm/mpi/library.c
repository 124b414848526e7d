/* See library.h. */
#include "src/comm/mpi/library.h"

#include <dlfcn.h>
#include <string.h>

#include "src/base/assert.h"

static const fsdp_mpi_abi *const abis[] = {&fsdp_mpi_abi_openmpi, &fsdp_mpi_abi_mpich};

static const fsdp_mpi_abi *find_abi(const char *key)
{
    for (size_t i = 0; i < FSDP_LENGTH(abis); i++)
        if (strcmp(abis[i]->key, key) == 0)
            return abis[i];
    return NULL;
}

/* Both libraries have been named libmpi.so.12 at some time. Only Open MPI exports this object. */
static bool is_of(const fsdp_mpi_abi *abi, void *library)
{
    const bool is_open = dlsym(library, "ompi_mpi_comm_world") != NULL;
    return is_open == (abi == &fsdp_mpi_abi_openmpi);
}

/* Open MPI's plug-ins look for symbols of the MPI library that loads them. So open the MPI library
 * with global symbols. If a program that embeds libfsdp has loaded the MPI library already,
 * dlopen() returns that library. */
static void *open_library(const fsdp_mpi_abi *abi)
{
    for (const char *const *file = abi->files; *file; file++) {
        void *library = dlopen(*file, RTLD_NOW | RTLD_GLOBAL);
        if (library && is_of(abi, library))
            return library;
        if (library)
            dlclose(library);
    }
    return NULL;
}

fsdp_status fsdp_mpi_load(const fsdp_mpi_job *job, const fsdp_mpi_abi **abi)
{
    const fsdp_mpi_abi *wanted = find_abi(job->key);
    if (!wanted)
        return fsdp_error(FSDP_ERR_INVALID, "environment: FSDP_MPI is '%s', not openmpi or mpich",
                          job->key);
    void *library = open_library(wanted);
    if (!library)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "environment: %s is set, so %s of %s has started this process, but its "
                          "library %s cannot be loaded: install %s, name the folder in "
                          "LD_LIBRARY_PATH, or start the ranks with `fsdp launch`",
                          job->variable, job->launcher, wanted->name, wanted->files[0],
                          wanted->package);
    const char *missing = wanted->resolve(library);
    if (missing) {
        dlclose(library);
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: %s has no %s: MPI 3.1 or newer is needed, as in the package %s",
                          wanted->name, wanted->files[0], missing, wanted->package);
    }
    *abi = wanted;
    return FSDP_OK;
}
