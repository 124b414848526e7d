/* A folder of a test, with files in it. */
#pragma once
#include "tests/test.h"

typedef struct folder {
    const char *path; /* that of the test */
    int root;         /* a descriptor */
} folder;

void folder_open(fsdp_test *t, folder *f);
void folder_close(folder *f);
/* Write a file with this text; append to it; make a folder; make a link; rename a file. Names are
 * relative to the folder. They abort if that fails. */
void folder_put(const folder *f, const char *name, const char *text);
void folder_add(const folder *f, const char *name, const char *text);
void folder_make(const folder *f, const char *name);
void folder_link(const folder *f, const char *target, const char *name);
void folder_rename(const folder *f, const char *from, const char *to);
