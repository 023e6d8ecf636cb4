# Those of DOCTOR_ADDRESSES that take a TCP connection, then "done". Nothing is sent.
import os, socket

for address in os.environ["DOCTOR_ADDRESSES"].split():
    try:
        socket.create_connection((address, 80), timeout=1).close()
        print(address)
    except OSError:
        pass
print("done")
