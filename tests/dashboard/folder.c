/* See folder.h. */
#include "tests/dashboard/folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void require(bool success, const char *name)
{
    if (success)
        return;
    perror(name);
    abort();
}

void folder_open(fsdp_test *t, folder *f)
{
    f->path = fsdp_test_dir(t);
    f->root = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    require(f->root >= 0, f->path);
}

void folder_close(folder *f)
{
    close(f->root);
}

static void write_text(const folder *f, const char *name, const char *text, int flags)
{
    const int fd = openat(f->root, name, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
    require(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), name);
    close(fd);
}

void folder_put(const folder *f, const char *name, const char *text)
{
    write_text(f, name, text, O_TRUNC);
}

void folder_add(const folder *f, const char *name, const char *text)
{
    write_text(f, name, text, O_APPEND);
}

void folder_make(const folder *f, const char *name)
{
    require(mkdirat(f->root, name, 0777) == 0, name);
}

void folder_link(const folder *f, const char *target, const char *name)
{
    require(symlinkat(target, f->root, name) == 0, name);
}

void folder_rename(const folder *f, const char *from, const char *to)
{
    require(renameat(f->root, from, f->root, to) == 0, from);
}
