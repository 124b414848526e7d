/* Reading and changing the fixtures of torch.save. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "tests/torchfile/torch_fixture.h"

const char *torch_fixture(const char *name)
{
    static char paths[4][600];
    static int next;
    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/%s", fsdp_test_path("fixtures/torch"), name);
    return paths[next];
}

torch_bytes torch_fixture_bytes(fsdp_test *t, const char *name)
{
    char *text = NULL;
    torch_bytes file = {0};
    if (fsdp_file_read(torch_fixture(name), 1 << 20, &text, &file.bytes) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    file.data = (unsigned char *)text;
    return file;
}

const char *torch_scratch(fsdp_test *t, const char *name, torch_bytes file)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_dir(t), name);
    if (fsdp_file_write(path, file.data, file.bytes) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return path;
}

size_t torch_find(fsdp_test *t, torch_bytes file, size_t from, const void *pattern, size_t n)
{
    const unsigned char *at =
        from < file.bytes ? memmem(file.data + from, file.bytes - from, pattern, n) : NULL;
    if (!at) {
        fsdp_test_fail(t, __FILE__, __LINE__, "the pattern is not there");
        return 0;
    }
    return (size_t)(at - file.data);
}
