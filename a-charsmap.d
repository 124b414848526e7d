charsmap.o: src/text/charsmap.c src/text/charsmap.h include/fsdp/base.h \
 src/base/alloc.h src/text/utf8.h
src/text/charsmap.h:
include/fsdp/base.h:
src/base/alloc.h:
src/text/utf8.h:
