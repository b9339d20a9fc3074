# The zoo on a CPU: docker build -t transformer-zoo . && docker run transformer-zoo generate vanilla.en-pt "The water is cold."
FROM python:3.12-slim
WORKDIR /zoo
COPY constraints.txt .
RUN pip install --no-cache-dir torch --constraint constraints.txt --index-url https://download.pytorch.org/whl/cpu
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt '.[inside]'
WORKDIR /work
ENTRYPOINT ["zoo"]
CMD ["--help"]
