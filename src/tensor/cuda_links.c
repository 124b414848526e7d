/* Connections between the cards of several ranks, by NCCL (fsdp_card_link_ops in shared_memory.h).
 *
 * Communicators do not block the host: a call that has to wait for other ranks returns
 * "in progress", and poll() asks for the result. So the caller can give up if a rank has failed. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/kernels/cuda/context.h"
#include "src/kernels/cuda/nccl.h"
#include "src/tensor/cuda_memory.h"
#include "src/tensor/device.h"

struct fsdp_card_link {
    const fsdp_nccl *nccl;
    fsdp_nccl_comm *comm;
    int device;
    cudaEvent_t ended; /* recorded after each exchange */
};

static fsdp_status nccl_error(const fsdp_nccl *nccl, int device, const char *call, int result)
{
    return fsdp_error(FSDP_ERR_COMM,
                      "device cuda:%d: %s: %s (NCCL_DEBUG=INFO shows why; FSDP_CARD_EXCHANGE=copy "
                      "works without NCCL)",
                      device, call, nccl->GetErrorString(result));
}

static bool is_failure(int result)
{
    return result != FSDP_NCCL_SUCCESS && result != FSDP_NCCL_IN_PROGRESS;
}

/* The emulated NCCL connects threads only. */
static bool is_available(bool one_process, char *reason, size_t bytes)
{
#ifdef CUDA_EMULATED
    if (!one_process) {
        snprintf(reason, bytes, "the emulated NCCL does not connect processes");
        return false;
    }
#else
    (void)one_process;
#endif
    return fsdp_nccl_load(reason, bytes) != NULL;
}

static fsdp_status load(const fsdp_nccl **nccl)
{
    char reason[256];
    *nccl = fsdp_nccl_load(reason, sizeof reason);
    return *nccl ? FSDP_OK : fsdp_error(FSDP_ERR_UNSUPPORTED, "NCCL: %s", reason);
}

static fsdp_status make_id(char id[FSDP_CARD_ID_BYTES])
{
    const fsdp_nccl *nccl;
    fsdp_nccl_id made;
    _Static_assert(sizeof made == FSDP_CARD_ID_BYTES, "an identity fits");
    FSDP_TRY(load(&nccl));
    const int result = nccl->GetUniqueId(&made);
    if (result != FSDP_NCCL_SUCCESS)
        return nccl_error(nccl, 0, "ncclGetUniqueId", result);
    memcpy(id, &made, sizeof made);
    return FSDP_OK;
}

static void free_link(fsdp_card_link *link)
{
    if (link->ended)
        cudaEventDestroy(link->ended);
    fsdp_free(link);
}

static fsdp_status connect(fsdp_card_link *link, const char id[FSDP_CARD_ID_BYTES], int rank,
                           int ranks)
{
    fsdp_nccl_id same;
    fsdp_nccl_config config = {.size = sizeof config,
                               .magic = FSDP_NCCL_MAGIC,
                               .version = FSDP_NCCL_CONFIG_VERSION,
                               .blocking = 0};
    memcpy(&same, id, sizeof same);
    cudaError_t error = cudaSetDevice(link->device);
    if (error == cudaSuccess)
        error = cudaEventCreateWithFlags(&link->ended, cudaEventDisableTiming);
    if (error != cudaSuccess)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "device cuda:%d: event: %s", link->device,
                          cudaGetErrorString(error));
    const int result = link->nccl->CommInitRankConfig(&link->comm, ranks, same, rank, &config);
    return is_failure(result)
               ? nccl_error(link->nccl, link->device, "ncclCommInitRankConfig", result)
               : FSDP_OK;
}

static fsdp_status open_link(int device, const char id[FSDP_CARD_ID_BYTES], int rank, int ranks,
                             fsdp_card_link **out)
{
    const fsdp_nccl *nccl;
    FSDP_TRY(load(&nccl));
    fsdp_card_link *link = fsdp_calloc(1, sizeof *link);
    if (!link)
        return fsdp_error_nomem();
    link->nccl = nccl;
    link->device = device;
    const fsdp_status status = connect(link, id, rank, ranks);
    if (status == FSDP_OK)
        *out = link;
    else
        free_link(link);
    return status;
}

/* Make the link's card the current card of this thread. Each thread has its own current card, which
 * is card 0 at first. If it were not the link's card, calls of CUDA would occupy memory on the
 * wrong card. */
static void use_card(const fsdp_card_link *link)
{
    (void)cudaSetDevice(link->device);
}

static fsdp_status poll_link(fsdp_card_link *link, bool *done)
{
    int state = FSDP_NCCL_SUCCESS;
    use_card(link);
    const int result = link->nccl->CommGetAsyncError(link->comm, &state);
    if (result != FSDP_NCCL_SUCCESS || is_failure(state))
        return nccl_error(link->nccl, link->device, "NCCL",
                          result != FSDP_NCCL_SUCCESS ? result : state);
    *done = state == FSDP_NCCL_SUCCESS;
    return FSDP_OK;
}

static int begin_piece(const fsdp_card_link *link, const fsdp_card_piece *p, cudaStream_t stream)
{
    const fsdp_nccl *nccl = link->nccl;
    return p->is_sent ? nccl->Send(p->data, p->bytes, FSDP_NCCL_UINT8, p->rank, link->comm, stream)
                      : nccl->Recv(p->data, p->bytes, FSDP_NCCL_UINT8, p->rank, link->comm, stream);
}

static fsdp_status exchange(fsdp_card_link *link, const fsdp_device *device,
                            const fsdp_card_piece *pieces, size_t n)
{
    fsdp_cuda_context *c = fsdp_cuda_of(device->context);
    int result = link->nccl->GroupStart(), failed = FSDP_NCCL_SUCCESS;
    if (result != FSDP_NCCL_SUCCESS)
        return nccl_error(link->nccl, link->device, "ncclGroupStart", result);
    for (size_t i = 0; i < n && !is_failure(failed); i++)
        failed = begin_piece(link, &pieces[i], fsdp_cuda_stream(c));
    result = link->nccl->GroupEnd();
    if (is_failure(failed) || is_failure(result))
        return nccl_error(link->nccl, link->device, "ncclSend and ncclRecv",
                          is_failure(failed) ? failed : result);
    return FSDP_OK;
}

static void mark(fsdp_card_link *link, const fsdp_device *device)
{
    fsdp_cuda_context *c = fsdp_cuda_of(device->context);
    fsdp_cuda_check(c, cudaEventRecord(link->ended, fsdp_cuda_stream(c)), "event");
}

static bool is_idle(fsdp_card_link *link)
{
    use_card(link);
    return cudaEventQuery(link->ended) != cudaErrorNotReady;
}

static void abort_link(fsdp_card_link *link)
{
    use_card(link);
    link->nccl->CommAbort(link->comm);
    free_link(link);
}

static void close_link(fsdp_card_link *link)
{
    link->nccl->CommDestroy(link->comm);
    free_link(link);
}

const fsdp_card_link_ops fsdp_cuda_links = {.is_available = is_available,
                                            .make_id = make_id,
                                            .open = open_link,
                                            .poll = poll_link,
                                            .exchange = exchange,
                                            .mark = mark,
                                            .is_idle = is_idle,
                                            .abort = abort_link,
                                            .close = close_link};
