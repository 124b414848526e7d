/* libFuzzer over the safetensors reader: `make fuzz FUZZ_S=60`. The input is a whole file; a file
 * that loads is read to its last byte, so that ASan finds an entry that reaches outside. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fsdp/ckpt.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    fsdp_safetensors *file;
    if (fsdp_safetensors_open(path, &file) == FSDP_OK) {
        volatile unsigned char sink = 0;
        for (size_t i = 0; i < fsdp_safetensors_count(file); i++) {
            const fsdp_checkpoint_entry *entry = fsdp_safetensors_at(file, i);
            for (size_t k = 0; k < entry->bytes; k++)
                sink ^= ((const unsigned char *)entry->data)[k];
            if (fsdp_safetensors_find(file, entry->name) != entry)
                abort();
        }
        (void)sink;
        fsdp_safetensors_close(file);
    }
    close(fd);
    return 0;
}
