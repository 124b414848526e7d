/* The functions of fsdp_mpi_abi in terms of the types and constants of one library. abi_openmpi.c
 * and abi_mpich.c declare those and then include this file: see Note [MPI at run time] in abi.h.
 * They define the types abi_comm, abi_datatype, abi_request, abi_info, abi_errhandler and
 * abi_status, the constants ABI_COMM_TYPE_SHARED and ABI_ANY_SOURCE, and the functions
 * comm_of(), handle_of_comm(), request_of(), handle_of_request(), world_of(), bytes_of(), info_of()
 * and errors_return_of(). */
#include <dlfcn.h>
#include <string.h>

static struct {
    int (*Initialized)(int *yes);
    int (*Finalized)(int *yes);
    int (*Init_thread)(int *argc, char ***argv, int wanted, int *level);
    int (*Query_thread)(int *level);
    int (*Finalize)(void);
    int (*Comm_set_errhandler)(abi_comm comm, abi_errhandler handler);
    int (*Comm_rank)(abi_comm comm, int *rank);
    int (*Comm_size)(abi_comm comm, int *size);
    int (*Comm_split_type)(abi_comm comm, int type, int key, abi_info info, abi_comm *out);
    int (*Comm_split)(abi_comm comm, int color, int key, abi_comm *out);
    int (*Comm_free)(abi_comm *comm);
    int (*Iallgather)(const void *send, int n_send, abi_datatype send_type, void *recv, int n_recv,
                      abi_datatype recv_type, abi_comm comm, abi_request *request);
    int (*Isend)(const void *data, int n, abi_datatype type, int to, int tag, abi_comm comm,
                 abi_request *request);
    int (*Irecv)(void *data, int n, abi_datatype type, int from, int tag, abi_comm comm,
                 abi_request *request);
    int (*Test)(abi_request *request, int *done, abi_status *status);
    int (*Get_count)(const abi_status *status, abi_datatype type, int *n);
    int (*Cancel)(abi_request *request);
    int (*Error_string)(int code, char *text, int *length);
} mpi;

/* POSIX lets an object pointer of dlsym() become a function pointer, but ISO C does not. */
static bool find(void *library, const char *name, void *function, size_t size)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, size);
    return symbol != NULL;
}

#define FIND(name)                                                                                 \
    if (!find(library, "MPI_" #name, &mpi.name, sizeof mpi.name))                                  \
    return "MPI_" #name
static const char *find_functions(void *library)
{
    FIND(Initialized);
    FIND(Finalized);
    FIND(Init_thread);
    FIND(Query_thread);
    FIND(Finalize);
    FIND(Comm_set_errhandler);
    FIND(Comm_rank);
    FIND(Comm_size);
    FIND(Comm_split_type);
    FIND(Comm_split);
    FIND(Comm_free);
    FIND(Iallgather);
    FIND(Isend);
    FIND(Irecv);
    FIND(Test);
    FIND(Get_count);
    FIND(Cancel);
    FIND(Error_string);
    return NULL;
}
#undef FIND

static int call_initialized(bool *yes)
{
    int flag = 0;
    const int error = mpi.Initialized(&flag);
    *yes = flag != 0;
    return error;
}

static int call_finalized(bool *yes)
{
    int flag = 0;
    const int error = mpi.Finalized(&flag);
    *yes = flag != 0;
    return error;
}

static int call_init_thread(int wanted, int *level)
{
    return mpi.Init_thread(NULL, NULL, wanted, level);
}

static int call_query_thread(int *level)
{
    return mpi.Query_thread(level);
}

static int call_finalize(void)
{
    return mpi.Finalize();
}

static int call_world(fsdp_mpi_handle *comm)
{
    *comm = handle_of_comm(world_of());
    return 0;
}

static int call_comm_rank(fsdp_mpi_handle comm, int *rank)
{
    return mpi.Comm_rank(comm_of(comm), rank);
}

static int call_comm_size(fsdp_mpi_handle comm, int *size)
{
    return mpi.Comm_size(comm_of(comm), size);
}

static int call_split_hosts(fsdp_mpi_handle comm, fsdp_mpi_handle *host)
{
    abi_comm made;
    const int error = mpi.Comm_split_type(comm_of(comm), ABI_COMM_TYPE_SHARED, 0, info_of(), &made);
    if (!error)
        *host = handle_of_comm(made);
    return error;
}

/* The errors of the new communicator are returned. By default MPI would end the process. */
static int call_reorder(fsdp_mpi_handle comm, int key, fsdp_mpi_handle *ordered)
{
    abi_comm made;
    int error = mpi.Comm_split(comm_of(comm), 0, key, &made);
    if (!error)
        error = mpi.Comm_set_errhandler(made, errors_return_of());
    if (!error)
        *ordered = handle_of_comm(made);
    return error;
}

static int call_comm_free(fsdp_mpi_handle *comm)
{
    abi_comm freed = comm_of(*comm);
    const int error = mpi.Comm_free(&freed);
    *comm = handle_of_comm(freed);
    return error;
}

static int call_iallgather(fsdp_mpi_handle comm, const void *send, void *recv, int bytes,
                           fsdp_mpi_handle *request)
{
    abi_request made;
    const int error =
        mpi.Iallgather(send, bytes, bytes_of(), recv, bytes, bytes_of(), comm_of(comm), &made);
    if (!error)
        *request = handle_of_request(made);
    return error;
}

static int call_isend(fsdp_mpi_handle comm, const void *data, int bytes, int to, int tag,
                      fsdp_mpi_handle *request)
{
    abi_request made;
    const int error = mpi.Isend(data, bytes, bytes_of(), to, tag, comm_of(comm), &made);
    if (!error)
        *request = handle_of_request(made);
    return error;
}

static int call_irecv(fsdp_mpi_handle comm, void *data, int bytes, int from, int tag,
                      fsdp_mpi_handle *request)
{
    abi_request made;
    const int error =
        mpi.Irecv(data, bytes, bytes_of(), from == FSDP_MPI_ANY_SOURCE ? ABI_ANY_SOURCE : from, tag,
                  comm_of(comm), &made);
    if (!error)
        *request = handle_of_request(made);
    return error;
}

static int call_test(fsdp_mpi_handle *request, bool *done, int *bytes)
{
    abi_request tested = request_of(*request);
    abi_status status;
    int flag = 0;
    *done = false;
    int error = mpi.Test(&tested, &flag, &status);
    *request = handle_of_request(tested);
    if (error || !flag)
        return error;
    *done = true;
    return bytes ? mpi.Get_count(&status, bytes_of(), bytes) : 0;
}

static int call_cancel(fsdp_mpi_handle *request)
{
    abi_request cancelled = request_of(*request);
    const int error = mpi.Cancel(&cancelled);
    *request = handle_of_request(cancelled);
    return error;
}

static void call_error_text(int code, char text[FSDP_MPI_ERROR_TEXT])
{
    int length = 0;
    memset(text, 0, FSDP_MPI_ERROR_TEXT);
    if (mpi.Error_string(code, text, &length))
        text[0] = 0;
    text[FSDP_MPI_ERROR_TEXT - 1] = 0;
}

#define FSDP_MPI_CALLS                                                                             \
    .initialized = call_initialized, .finalized = call_finalized, .init_thread = call_init_thread, \
    .query_thread = call_query_thread, .finalize = call_finalize, .world = call_world,             \
    .comm_rank = call_comm_rank, .comm_size = call_comm_size, .split_hosts = call_split_hosts,     \
    .reorder = call_reorder, .comm_free = call_comm_free, .iallgather = call_iallgather,           \
    .isend = call_isend, .irecv = call_irecv, .test = call_test, .cancel = call_cancel,            \
    .error_text = call_error_text
