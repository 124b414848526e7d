/* Loads cublasLt with dlopen(), from where the dynamic loader looks for libraries. The name of the
 * library contains the major version of CUDA. The functions and constants that gemm uses are the
 * same in versions 12 and 13. */
#include "src/kernels/cuda/cublaslt.h"

#include <string.h>

#ifdef CUDA_EMULATED

/* The emulator of the tests is linked. */
fsdp_status fsdp_cublaslt_load(fsdp_cublaslt *lt)
{
#define LINKED(name) .name = cublasLt##name,
    *lt = (fsdp_cublaslt){FSDP_CUBLASLT_FUNCTIONS(LINKED)};
    return FSDP_OK;
}

void fsdp_cublaslt_unload(fsdp_cublaslt *lt)
{
    memset(lt, 0, sizeof *lt);
}

#else
#include <dlfcn.h>

static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

static fsdp_status not_loaded(const char *reason)
{
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "%s (cublasLt multiplies matrices on a CUDA device; the packages "
                      "libcublas-13-x of CUDA and nvidia-cublas of PyPI have it. Add its folder to "
                      "LD_LIBRARY_PATH if it is not in a folder of the loader)",
                      reason);
}

fsdp_status fsdp_cublaslt_load(fsdp_cublaslt *lt)
{
    char reason[256] = "";
    memset(lt, 0, sizeof *lt);
    for (size_t i = 0; i < sizeof names / sizeof *names && !lt->library; i++) {
        lt->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        /* The reason why the newest version was not loaded is reported. */
        const char *error = lt->library ? NULL : dlerror();
        if (error && !*reason)
            strncpy(reason, error, sizeof reason - 1);
    }
    if (!lt->library)
        return not_loaded(reason);
    /* ISO C does not convert the result of dlsym() to a pointer to a function; POSIX does. */
    const char *missing = NULL;
    void *address;
#define FIND(name)                                                                                 \
    address = dlsym(lt->library, "cublasLt" #name);                                                \
    memcpy(&lt->name, &address, sizeof address);                                                   \
    if (!address)                                                                                  \
        missing = "cublasLt" #name;
    FSDP_CUBLASLT_FUNCTIONS(FIND)
    if (!missing)
        return FSDP_OK;
    fsdp_cublaslt_unload(lt);
    return fsdp_error(FSDP_ERR_UNSUPPORTED, "libcublasLt.so has no function %s", missing);
}

void fsdp_cublaslt_unload(fsdp_cublaslt *lt)
{
    if (lt->library)
        dlclose(lt->library);
    memset(lt, 0, sizeof *lt);
}
#endif
