regex_none.o: src/text/regex_none.c src/text/regex.h include/fsdp/base.h \
 src/base/alloc.h src/base/assert.h
src/text/regex.h:
include/fsdp/base.h:
src/base/alloc.h:
src/base/assert.h:
