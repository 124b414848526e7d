/* The cards that the CUDA runtime finds. CUDA_VISIBLE_DEVICES hides cards and changes their
 * numbers; the runtime obeys it. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/kernels/cuda/library.h"
#include "src/tensor/cards.h"

#ifdef CUDA_EMULATED
#define IS_EMULATED true
#undef FSDP_CUDA_CODE
#define FSDP_CUDA_CODE "emulated"
#else
#define IS_EMULATED false
#endif

/* Write the value of CUDA_VISIBLE_DEVICES to `text`, in parentheses, so that it can be appended to
 * an error message. Write an empty string if the variable is not set. Return `text`. */
static const char *visible(char text[160])
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    *text = '\0';
    if (list)
        snprintf(text, 160, " (CUDA_VISIBLE_DEVICES is '%.100s')", list);
    return text;
}

static fsdp_status count_cards(int *n)
{
    int driver = 0;
    char hidden[160];
    const cudaError_t error = cudaGetDeviceCount(n);
    if (error == cudaSuccess && *n > 0)
        return FSDP_OK;
    (void)cudaGetLastError();
    const bool has_driver = cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
    return fsdp_error(
        FSDP_ERR_UNSUPPORTED,
        "device cuda: no card: %s%s; 'fsdp env' shows what was found, and cpu computes "
        "on the CPU",
        !has_driver            ? "there is no NVIDIA driver (libcuda.so.1)"
        : error != cudaSuccess ? cudaGetErrorString(error)
                               : "the driver reports none",
        visible(hidden));
}

static fsdp_status describe(int ordinal, fsdp_card *card)
{
    struct cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceProperties(&properties, ordinal);
    if (error != cudaSuccess)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "device cuda:%d: %s", ordinal,
                          cudaGetErrorString(error));
    *card = (fsdp_card){.bytes = (int64_t)properties.totalGlobalMem,
                        .capability = 10 * properties.major + properties.minor};
    snprintf(card->name, sizeof card->name, "%.120s", properties.name);
    if (IS_EMULATED)
        snprintf(card->code, sizeof card->code, "%s", FSDP_CUDA_CODE);
    else
        fsdp_card_choose_code(FSDP_CUDA_CODE, card->capability, card->code);
    return FSDP_OK;
}

static fsdp_status free_bytes(int ordinal, int64_t *bytes)
{
    size_t unused = 0, total = 0;
    int before = 0;
    cudaError_t error = cudaGetDevice(&before);
    if (error == cudaSuccess)
        error = cudaSetDevice(ordinal);
    if (error == cudaSuccess)
        error = cudaMemGetInfo(&unused, &total);
    cudaSetDevice(before);
    if (error != cudaSuccess)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "device cuda:%d: %s", ordinal,
                          cudaGetErrorString(error));
    *bytes = (int64_t)unused;
    return FSDP_OK;
}

static bool reaches(int from, int to)
{
    int can = 0;
    if (cudaDeviceCanAccessPeer(&can, from, to) == cudaSuccess)
        return can;
    (void)cudaGetLastError();
    return false;
}

static void versions(int *driver, int *runtime)
{
    *driver = *runtime = 0;
    if (cudaDriverGetVersion(driver) != cudaSuccess)
        *driver = 0;
    if (cudaRuntimeGetVersion(runtime) != cudaSuccess)
        *runtime = 0;
}

#ifdef CUDA_EMULATED
static bool library_version(const char *library, char version[32])
{
    (void)library; /* the emulator has both libraries */
    strcpy(version, "emulated");
    return true;
}
#else
static size_t cublaslt_version(void *library)
{
    size_t (*get)(void) = NULL;
    void *address = dlsym(library, "cublasLtGetVersion");
    memcpy(&get, &address, sizeof get); /* ISO C does not allow this conversion; POSIX does */
    return get ? get() : 0;
}

static size_t nccl_version(void *library)
{
    int (*get)(int *) = NULL, version = 0;
    void *address = dlsym(library, "ncclGetVersion");
    memcpy(&get, &address, sizeof get);
    return get && get(&version) == 0 ? (size_t)version : 0;
}

static bool library_version(const char *name, char text[32])
{
    static const char *const nccl[] = {"libnccl.so.2", NULL};
    static const char *const cublaslt[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
    const bool is_nccl = strcmp(name, "nccl") == 0;
    char reason[256];
    void *library = fsdp_cuda_library_open(is_nccl ? nccl : cublaslt, reason, sizeof reason);
    if (!library)
        return false;
    const size_t version = is_nccl ? nccl_version(library) : cublaslt_version(library);
    /* cublasLt encodes version 13.1.1 as 130101, and NCCL encodes version 2.27.3 as 22703. */
    snprintf(text, 32, "%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
    return true;
}
#endif

const fsdp_card_ops fsdp_cuda_cards = {.count = count_cards,
                                       .describe = describe,
                                       .free_bytes = free_bytes,
                                       .reaches = reaches,
                                       .versions = versions,
                                       .library_version = library_version,
                                       .code = FSDP_CUDA_CODE,
                                       .is_emulated = IS_EMULATED};
