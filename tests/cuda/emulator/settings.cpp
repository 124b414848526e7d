/* The beginning: settings, the arena, and a handler that explains faults in the arena. */
#include "settings.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "emu.h"
#include "memory.h"

namespace emu
{
emulator_settings settings;
static struct sigaction previous_handler;

static int64_t read_setting(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text ? atoll(text) : otherwise;
}

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    if (is_in_arena(info->si_addr)) {
        static const char by_host[] = "== emulator: the HOST dereferences device memory\n";
        static const char by_kernel[] = "== emulator: a kernel uses memory that is not allocated, "
                                        "or of another device\n";
        const char *text = emu_self ? by_kernel : by_host;
        if (write(2, text, strlen(text)) < 0)
            _exit(66);
    }
    if (previous_handler.sa_flags & SA_SIGINFO && previous_handler.sa_sigaction)
        previous_handler.sa_sigaction(signal_number, info, context);
    signal(SIGSEGV, SIG_DFL); /* the access is repeated and ends the process */
}

static void start_once(void)
{
    settings.seed = (uint64_t)read_setting("EMU_SEED", 0);
    settings.late_ms = (int)read_setting("EMU_LATE_MS", 20);
    settings.n_devices = (int)read_setting("EMU_DEVICES", 2);
    settings.protect = read_setting("EMU_PROTECT", 1) != 0;
    settings.memory_bytes = (size_t)read_setting("EMU_MEMORY_MB", 4096) << 20;
    settings.fail_after = read_setting("EMU_FAIL_AFTER", 0);
    if (settings.n_devices > DEVICES)
        settings.n_devices = DEVICES;
    map_arena();
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous_handler);
}

void start(void)
{
    static std::once_flag once;
    std::call_once(once, start_once);
}
} // namespace emu
