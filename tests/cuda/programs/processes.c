/* Memory of one process in another: cudaIpc*MemHandle. The first process allocates and fills
 * memory, a second one, which is forked before either uses CUDA or is started separately
 * (`processes exec`), reads it and writes to it. */
#include "tests/cuda/programs/program.h"

#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    COUNT = 100000,
    MORE = 3
};

/* What the processes exchange through pipes. */
typedef struct message {
    cudaIpcMemHandle_t handle;
    void *address; /* in the process that allocated */
} message;

static void receive(int fd, void *p, size_t n)
{
    EXPECT(read(fd, p, n) == (ssize_t)n);
}

static void send(int fd, const void *p, size_t n)
{
    EXPECT(write(fd, p, n) == (ssize_t)n);
}

/* The second process: add 1 to each number. */
static int run_second(int in, int out)
{
    static int numbers[COUNT];
    for (int round = 0; round < MORE; round++) {
        message m;
        void *p, *own;
        receive(in, &m, sizeof m);
        CHECK_CUDA(cudaMalloc(&own, 64)); /* so that addresses differ */
        CHECK_CUDA(cudaIpcOpenMemHandle(&p, m.handle, cudaIpcMemLazyEnablePeerAccess));
        EXPECT(p != m.address);
        CHECK_CUDA(cudaMemcpy(numbers, p, sizeof numbers, cudaMemcpyDeviceToHost));
        for (int i = 0; i < COUNT; i++) {
            EXPECT(numbers[i] == i + round);
            numbers[i]++;
        }
        CHECK_CUDA(cudaMemcpy(p, numbers, sizeof numbers, cudaMemcpyHostToDevice));
        CHECK_CUDA(cudaIpcCloseMemHandle(p));
        EXPECT(cudaIpcCloseMemHandle(p) == cudaErrorInvalidValue);
        CHECK_CUDA(cudaFree(own));
        send(out, "k", 1);
    }
    return 0;
}

static int run_first(int in, int out)
{
    static int numbers[COUNT];
    void *p, *gap, *opened;
    message m;
    char ready;
    CHECK_CUDA(cudaMalloc(&gap, 1000)); /* the memory does not begin at a page */
    CHECK_CUDA(cudaMalloc(&p, sizeof numbers));
    for (int i = 0; i < COUNT; i++)
        numbers[i] = i;
    CHECK_CUDA(cudaMemcpy(p, numbers, sizeof numbers, cudaMemcpyHostToDevice));
    memset(&m, 0, sizeof m);
    m.address = p;
    CHECK_CUDA(cudaIpcGetMemHandle(&m.handle, p));
    EXPECT(cudaIpcGetMemHandle(&m.handle, numbers) == cudaErrorInvalidValue);
    EXPECT(cudaIpcOpenMemHandle(&opened, m.handle, 0) != cudaSuccess); /* its own memory */
    (void)cudaGetLastError();
    for (int round = 0; round < MORE; round++) {
        send(out, &m, sizeof m);
        receive(in, &ready, 1);
        CHECK_CUDA(cudaMemcpy(numbers, p, sizeof numbers, cudaMemcpyDeviceToHost));
        for (int i = 0; i < COUNT; i++)
            EXPECT(numbers[i] == i + round + 1);
    }
    CHECK_CUDA(cudaFree(p));
    CHECK_CUDA(cudaFree(gap));
    return 0;
}

int main(int argc, char **argv)
{
    int to_second[2], to_first[2], status;
    if (argc == 4) /* the second process, started separately */
        return run_second(atoi(argv[2]), atoi(argv[3]));
    EXPECT(pipe(to_second) == 0 && pipe(to_first) == 0);
    const pid_t second = fork();
    if (second == 0) {
        char in[16], out[16];
        if (argc < 2)
            return run_second(to_second[0], to_first[1]);
        snprintf(in, sizeof in, "%d", to_second[0]);
        snprintf(out, sizeof out, "%d", to_first[1]);
        execl("/proc/self/exe", argv[0], argv[1], in, out, (char *)NULL);
        return 1;
    }
    close(to_second[0]);
    close(to_first[1]);
    const int result = run_first(to_first[0], to_second[1]);
    EXPECT(waitpid(second, &status, 0) == second);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return result;
}
