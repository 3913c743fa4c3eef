// Moves the wall clock of a process, loaded with LD_PRELOAD: adds the seconds in the file CLOCK_OFFSET_FILE to every
// time of the system clock. The file is mapped into memory, so a change takes effect at once, and reading it is safe
// within signal handlers, which PostgreSQL uses for its timeouts. libfaketime allocates memory there, which now and
// then crashed a server under load.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int32_t *offset_seconds;

__attribute__((constructor)) static void map_offset(void)
{
    const char *name = getenv("CLOCK_OFFSET_FILE");
    int file = name == NULL ? -1 : open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        _exit(99);
    void *memory = mmap(NULL, sizeof *offset_seconds, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED)
        _exit(99);
    offset_seconds = memory;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int) syscall(SYS_clock_gettime, clock, now);
    int is_wall_clock = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (!failed && is_wall_clock && offset_seconds != NULL)
        now->tv_sec += *offset_seconds;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec time;
    (void) zone;
    if (clock_gettime(CLOCK_REALTIME, &time))
        return -1;
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds != NULL)
        *seconds = now.tv_sec;
    return now.tv_sec;
}
